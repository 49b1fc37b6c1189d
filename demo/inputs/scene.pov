// Spheres that mirror each other over a checkered plane.
#version 3.7;
global_settings { assumed_gamma 1.0 }
camera { location <0, 3, -8> look_at <0, 1, 0> }
light_source { <6, 9, -7> color rgb 1 }
light_source { <-6, 5, -3> color rgb 0.4 }
plane { y, 0 pigment { checker color rgb 1 color rgb 0.2 } finish { reflection 0.15 } }
#declare Row = -3;
#while (Row <= 3)
  #declare Column = 0;
  #while (Column < 4)
    sphere { <Row, 0.5 + 0.7 * Column, Column * 1.5> 0.5
      pigment { color rgb <0.5 + Row / 8, 0.4, Column / 4> }
      finish { phong 0.7 reflection 0.3 } }
    #declare Column = Column + 1;
  #end
  #declare Row = Row + 1;
#end
